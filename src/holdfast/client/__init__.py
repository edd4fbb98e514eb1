"""The client. It runs `holdfast.membership` over sockets.

From the lowest layer up: `addresses` and `security` read the settings, `transport` transfers bytes under deadlines,
`connection` sends requests and receives responses, `cluster_client` keeps the connections of one member, and `metadata`
describes the topics.
"""
