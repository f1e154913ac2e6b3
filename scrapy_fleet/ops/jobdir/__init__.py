"""Scrapy's job directories: read, also after a crash, brought into a crawl, and written from one."""
