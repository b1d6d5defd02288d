"""HTTP checks for operators' machines: liveness and readiness of the running process."""
