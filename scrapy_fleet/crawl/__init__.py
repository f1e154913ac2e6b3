"""The Scrapy side: a Scrapy scheduler over a frontier."""
