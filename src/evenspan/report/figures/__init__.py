"""The figures of a report, by what they show."""
