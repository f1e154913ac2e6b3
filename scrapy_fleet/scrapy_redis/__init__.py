"""For projects that were written for scrapy-redis: the same names and settings, on the fleet's frontier.

Change ``scrapy_redis`` to ``scrapy_fleet.scrapy_redis`` in imports and settings. More is in
docs/from-scrapy-redis.md.
"""
