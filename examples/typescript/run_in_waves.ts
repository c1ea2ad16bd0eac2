// The helper of "The Concurrency Trap", and the same agents through headway's gateway.
//
//   headway gateway -- npx tsx run_in_waves.ts
//
// A wave waits for its slowest agent, and its size has to be guessed. Behind the gateway all
// agents may start at once: each call is sent when it fits, and refusals are absorbed there.

type Task<T> = () => Promise<T>;

export async function runInWaves<T>(tasks: Task<T>[], size = 4): Promise<T[]> {
  const results: T[] = [];
  for (let at = 0; at < tasks.length; at += size) {
    results.push(...(await Promise.all(tasks.slice(at, at + size).map((task) => task()))));
  }
  return results;
}

const base = process.env.OPENAI_BASE_URL ?? "https://api.openai.com/v1";
const key = process.env.OPENAI_API_KEY ?? "";

async function ask(text: string): Promise<string> {
  const answer = await fetch(`${base}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: process.env.MODEL ?? "gpt-5-mini",
      max_tokens: 200,
      messages: [{ role: "user", content: text }],
    }),
  });
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  const body = (await answer.json()) as { choices: { message: { content: string } }[] };
  return body.choices[0].message.content;
}

const count = Number(process.argv[2] ?? 22);
const agents: Task<string>[] = Array.from({ length: count }, (_, n) => () => ask(`Explore module ${n}.`));

const begin = performance.now();
const inWaves = await runInWaves(agents, 4);
const waves = performance.now() - begin;
const atOnce = await runInWaves(agents, agents.length); // one wave: headway is the pace
const paced = performance.now() - begin - waves;
console.log(`${inWaves.length} agents in waves of 4: ${(waves / 1000).toFixed(1)} s`);
console.log(`${atOnce.length} agents at once, paced: ${(paced / 1000).toFixed(1)} s`);
