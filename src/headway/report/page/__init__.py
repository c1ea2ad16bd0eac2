"""How is it shown in a browser? One page, live or as a file.

Reading order: `data` (what the page shows), `details` (one task), `document` (the page as one
file), `server` (the live page). page.html, page.css and page.js draw, and compute nothing
but places.
"""
