"""The broker: network, API, authorization, group coordination and storage around the pure coordinator."""
