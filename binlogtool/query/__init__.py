"""The --where language: grammar, conditions, evaluation."""
