"""Real worker processes, killed in every way, judged by what the site saw."""
