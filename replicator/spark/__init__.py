"""Stage one's JVMs: the session, their options, jars, class archive, executors."""
