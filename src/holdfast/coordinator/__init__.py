"""The server half of the group protocol, without any IO.

Commands come in with the time as an argument; what must be stored and what must be said comes out. See
`coordinator.GroupCoordinator` for the way through, `states` for the table that everything follows.
"""
