//! Patterns of names and paths: `*` stands for anything but a slash, `**` for anything, `?` for one letter.

/// Whether all of the text is what the pattern says. What that costs is bounded by both lengths, however many
/// stars there are.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    // Up to which places of the text the pattern so far can reach.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while let Some(&letter) = pattern.get(at) {
        at += 1;
        if letter == b'*' {
            let is_double = pattern.get(at) == Some(&b'*');
            at += usize::from(is_double);
            for place in 0..text.len() {
                reached[place + 1] |= reached[place] && (is_double || text[place] != b'/');
            }
            continue;
        }
        for place in (0..text.len()).rev() {
            let is_it = if letter == b'?' { text[place] != b'/' } else { text[place] == letter };
            reached[place + 1] = reached[place] && is_it;
        }
        reached[0] = false;
    }
    reached[text.len()]
}

/// Whether a folder may have folders below it whose path fits. It may be wrong where it says so.
pub(super) fn leads_to(pattern: &str, folder: &str) -> bool {
    let mut wanted = pattern.split('/');
    for part in folder.split('/') {
        match wanted.next() {
            None => return false,
            Some(pattern) if pattern.contains("**") => return true,
            Some(pattern) if !fits(pattern, part) => return false,
            Some(_) => {}
        }
    }
    wanted.next().is_some()
}

/// Whether it stands for one text alone.
pub(super) fn is_exact(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_ends_at_a_slash_and_two_do_not() {
        assert!(fits("/system.slice/web*.service", "/system.slice/web-1.service"));
        assert!(!fits("/system.slice/web*.service", "/system.slice/web/1.service"));
        assert!(!fits("/system.slice/web*.service", "/system.slice/web-1.scope"));
        assert!(fits("/**/a?c", "/x/y/abc"));
        assert!(!fits("/**/a?c", "/x/y/a/c"));
        assert!(fits("**", "") && fits("*", "") && !fits("?", ""));
        assert!(fits("redis", "redis") && !fits("redis", "redis-server"));
    }

    #[test]
    fn only_folders_are_looked_into_that_may_lead_to_what_is_wanted() {
        let pattern = "/system.slice/web*.service/x";
        for folder in ["", "/system.slice", "/system.slice/web-1.service"] {
            assert!(leads_to(pattern, folder), "{folder}");
        }
        for folder in ["/user.slice", "/system.slice/db.service", "/system.slice/web-1.service/x"] {
            assert!(!leads_to(pattern, folder), "{folder}");
        }
        assert!(leads_to("/a/**/b", "/a/c/d/e"));
        assert!(!leads_to("/a/**/b", "/c"));
    }
}
