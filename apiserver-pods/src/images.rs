//! What the name of an image says of its tag.
//!
//! Inputs: the image as written. Source: the grammar of references of the container distribution project. Absent on
//! purpose: whether the image exists.

/// How an image is pulled when nothing is said of it: the latest one each time. A name that cannot be read has no tag.
pub(crate) fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// The tag; "latest" where there is neither a tag nor a digest, None where there is only a digest or no image.
fn tag(image: &str) -> Option<&str> {
    // Such a name would be taken for an identifier.
    if image.len() == 64 && image.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    let (domain, rest) = split_domain(image);
    if domain.is_some_and(|domain| !is_domain(domain)) {
        return None;
    }
    let (named, digest) = match rest.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match named.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (named, None),
    };
    let readable =
        path.split('/').all(is_component) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    match (readable, tag, digest) {
        (false, ..) => None,
        (true, None, None) => Some("latest"),
        (true, tag, _) => tag,
    }
}

/// A first part is a domain if it looks like one: with a dot, a port or capitals.
fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    }
}

fn is_domain(domain: &str) -> bool {
    // An IPv6 address stands in brackets.
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let hex = |b: u8| b.is_ascii_hexdigit() || b == b':';
        return !address.is_empty() && address.bytes().all(hex) && (port.is_empty() || is_port(port));
    }
    let end = domain.find(':').unwrap_or(domain.len());
    let (host, port) = domain.split_at(end);
    host.split('.').all(is_host_part) && (port.is_empty() || is_port(port))
}

fn is_port(port: &str) -> bool {
    port.strip_prefix(':').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host_part(part: &str) -> bool {
    let b = part.as_bytes();
    let edge = |c: &u8| c.is_ascii_alphanumeric();
    b.first().is_some_and(edge) && b.last().is_some_and(edge) && b.iter().all(|c| edge(c) || *c == b'-')
}

/// Lower case letters and digits, in between one dot, one or two underscores, or any number of hyphens.
fn is_component(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let edges = part.starts_with(plain) && part.ends_with(plain);
    let known = part.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'));
    let mut separators = part.split(plain).filter(|between| !between.is_empty());
    edges && known && separators.all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let b = tag.as_bytes();
    b.len() <= 128
        && b.first().is_some_and(|first| word(*first))
        && b.iter().all(|c| word(*c) || matches!(c, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let named = algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    named && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_image_is_always_pulled() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for image in ["i", "i:latest", "a/b", "localhost:5000/i", "Host/i", "[::1]:5000/i", "a__b", "a--b.c"]
        {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
        assert_eq!(pull_policy(&format!("i:latest@{digest}")), "Always");
        assert_eq!(pull_policy(&format!("i@{digest}")), "IfNotPresent");
        for image in ["", " ", "i:1", "Image", "i:", "i@x", "a//b", "a..b", "i:-", "host.:5000/i", "a/B"] {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
        assert_eq!(pull_policy(&"a".repeat(64)), "IfNotPresent");
    }
}
