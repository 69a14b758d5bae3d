"""Results as text, JSON, JUnit, SARIF, GitLab, GitHub, Markdown and HTML."""
