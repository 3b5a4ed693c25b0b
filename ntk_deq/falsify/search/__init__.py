"""The adversarial search: where no instance of the ladder breaks a claim, look for one."""
