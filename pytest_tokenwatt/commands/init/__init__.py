"""``init``: a spec written by asking a running server and the driver of this machine."""
