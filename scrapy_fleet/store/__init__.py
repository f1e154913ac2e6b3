"""Where a crawl lives. Stores are synchronous, work in batches, and know no Scrapy."""
