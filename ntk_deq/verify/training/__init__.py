"""Claims about training runs: the run on an instance, its judged steps, and what the report needs of it."""
