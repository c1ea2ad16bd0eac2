"""A provider to try things on: pure in virtual time, and behind HTTP.

Reading order: `draw`, `account`, `provider`, `headers`, `supply`, `clients`, `rehearsal`, `audit`
(pure); `presets`, `preset_file`, `compare`; `models`, `script`, `truth`, `delivery`, `server`.
"""
