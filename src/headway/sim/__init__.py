"""A provider to try things on: pure in virtual time, and behind HTTP.

Reading order: `draw`, `account`, `provider`, `headers`, `supply`, `clients`, `rehearsal`, `audit`
(pure); `presets`, `compare`; `truth`, `delivery`, `models`, `server`.
"""
