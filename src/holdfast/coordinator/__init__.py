"""The group coordinator, without side effects.

Commands come in with the time as an argument; effects come out: records to append, responses, events and warnings. See
`coordinator.GroupCoordinator` for the way in and `classic.state_machine` for the table that dispatches every request.

- `runtime`: what runs commands, timers and effects, for every type of group
- `classic`: Kafka's classic group protocol
- `extensions`: what Holdfast adds to it, attached through `classic.hooks`
- `offsets`: committed offsets
- `events`: what happened in a group, and why
"""
