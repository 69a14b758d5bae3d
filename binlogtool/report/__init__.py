"""Render results as text, JSON, JUnit, SARIF, GitLab, GitHub, Markdown and HTML."""
