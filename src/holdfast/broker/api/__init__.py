"""The supported APIs: the registry of handlers, the handlers, their checks, and the services that they use."""
