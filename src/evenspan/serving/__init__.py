"""A calibrated model behind HTTP: `run` starts a server, `create_app` makes the application."""
