"""The sample library of the tests."""

from tests.sample_home import home, library_clock

__all__ = ["home", "library_clock"]
