"""What both stages agree on. Nothing here imports a stage, and nothing here imports Spark."""
