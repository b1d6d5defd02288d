"""What operators' machines ask the running process: is it alive, is it ready."""
