# docker build -t headway . && docker run --rm -v "$PWD:/work" -e ANTHROPIC_API_KEY headway run plan.yaml
FROM python:3.14-slim AS build
COPY pyproject.toml README.md LICENSE hatch_build.py /src/
COPY src /src/src
RUN python -m pip wheel --quiet --no-deps --wheel-dir /dist /src

FROM python:3.14-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /dist /dist
RUN python -m pip install --quiet --no-cache-dir /dist/*.whl 'genai-prices>=0.2.1' && rm -r /dist
RUN useradd --create-home headway && mkdir /work /state && chown headway /work /state
USER headway
ENV HEADWAY_STATE_DIR=/state
VOLUME /state
WORKDIR /work
ENTRYPOINT ["headway"]
