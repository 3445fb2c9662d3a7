"""Timelines, memory reports and estimates."""
