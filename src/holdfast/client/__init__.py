"""The client as people use it: it drives `holdfast.membership` over real sockets.

From the wire up: `addresses` and `security` read the settings, `transport` moves bytes under deadlines, `connection`
makes them requests and answers, `network` keeps the connections of one member, `metadata` says what the topics are.
"""
