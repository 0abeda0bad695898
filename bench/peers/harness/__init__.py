"""Runs Cutthrough and its peers in turn on this machine; `../run` is the program."""
