"""Spiders as people write them, to be run with stock Scrapy and with the add-on."""
