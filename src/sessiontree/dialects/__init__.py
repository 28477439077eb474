"""One package per session format. `contract` has the protocol they implement, `defaults` a base class."""
