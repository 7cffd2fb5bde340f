"""The lab report as one HTML file that needs nothing from outside: no script, no font, no picture."""
