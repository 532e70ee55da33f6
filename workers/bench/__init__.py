"""The isolated bench: a disposable child that alone holds the device, and its supervisor."""
