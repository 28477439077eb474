from tests_adapters.repositories import home, server

__all__ = ["home", "server"]
