"""What every store must do. Each test holds a sentence of ``scrapy_fleet/store/base.py``."""
