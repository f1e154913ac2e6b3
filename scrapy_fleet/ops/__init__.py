"""What people run beside a crawl. Nothing else in the package imports it."""
