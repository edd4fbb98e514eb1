"""Commands, timers and effects, the same for every type of group."""
