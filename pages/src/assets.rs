//! Files that pages refer to; all are part of the program.

/// Name, media type and text of each.
pub const FILES: [(&str, &str, &str); 5] = [
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("assets/live.js")),
    ("time.css", "text/css; charset=utf-8", include_str!("assets/time.css")),
    ("time.js", "text/javascript; charset=utf-8", include_str!("assets/time.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];
