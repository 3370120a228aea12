//! Who may do what: bearer tokens with scopes.
//!
//! A token is given as `Authorization: Bearer TOKEN`, or as the password of `Authorization: Basic`, which is how a browser
//! asks a person for it. Tokens are compared in a time that does not depend on how much of a guess is right.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

/// The shortest token: 16 random characters cannot be guessed.
const SHORTEST: usize = 16;

/// What a request may do. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Predict, and look at models and figures.
    Read,
    /// Change what models have learned.
    Learn,
    /// Create and delete models, and take them away whole.
    Admin,
}

impl Scope {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Learn => "learn",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let all = [Self::Read, Self::Learn, Self::Admin];
        all.into_iter().find(|scope| scope.name() == text).ok_or_else(|| TokenError::Scope(text.into()))
    }
}

/// What is wrong with a list of tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The scope is none.
    #[error("'{0}' is not read, learn or admin")]
    Scope(String),
    /// A line is not a scope and a token.
    #[error("line {line} is not a scope and a token, as in: learn 0123456789abcdef")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// A token could be guessed, or cannot stand in a header.
    #[error("the token in line {line} is not 16 to 512 visible ASCII characters")]
    Token {
        /// Its number, from 1.
        line: usize,
    },
}

/// The tokens that are known.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Scope, Vec<u8>)>);

impl fmt::Debug for Tokens {
    /// How many there are; the tokens themselves are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl FromStr for Tokens {
    type Err = TokenError;

    /// One line for each token: its scope, a blank and the token. Empty lines and lines that begin with # are left out.
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut tokens = Vec::new();
        for (line, content) in text.lines().enumerate().map(|(i, content)| (i + 1, content.trim())) {
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (scope, token) = content.split_once(char::is_whitespace).ok_or(TokenError::Line { line })?;
            let token = token.trim().as_bytes();
            if !(SHORTEST..=512).contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
                return Err(TokenError::Token { line });
            }
            tokens.push((scope.parse()?, token.to_vec()));
        }
        Ok(Self(tokens))
    }
}

impl Tokens {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What whoever sent these headers may do: everything if there are no tokens, nothing without a known one.
    pub fn scope(&self, headers: &HeaderMap) -> Option<Scope> {
        if self.is_empty() {
            return Some(Scope::Admin);
        }
        let given = headers.get(AUTHORIZATION)?.as_bytes();
        let (kind, rest) = given.split_at_checked(given.iter().position(|&b| b == b' ')?)?;
        let rest = rest.trim_ascii();
        let password;
        let token = if kind.eq_ignore_ascii_case(b"bearer") {
            rest
        } else if kind.eq_ignore_ascii_case(b"basic") {
            password = decode_base64(rest)?;
            &password[password.iter().position(|&b| b == b':')? + 1..]
        } else {
            return None;
        };
        // All are compared, whichever fits.
        let fitting = |(scope, own): &(Scope, Vec<u8>)| same(own, token).then_some(*scope);
        self.0.iter().fold(None, |best, entry| best.max(fitting(entry)))
    }
}

/// Whether two are the same, in a time that depends on their lengths alone.
fn same(own: &[u8], given: &[u8]) -> bool {
    let mut difference = own.len() ^ given.len();
    for (i, &byte) in given.iter().enumerate() {
        difference |= usize::from(black_box(own[i % own.len()] ^ byte));
    }
    black_box(difference) == 0
}

/// The bytes of base 64 with the letters of RFC 4648.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let text = &text[..text.len() - text.iter().rev().take_while(|&&b| b == b'=').count()];
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::with_capacity(text.len() * 3 / 4));
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn tokens_open_what_their_scope_says() {
        let tokens: Tokens =
            "# ours\nread 0123456789abcdef\n\nlearn\tfedcba9876543210\nadmin aaaaaaaaaaaaaaaaaaaa"
                .parse()
                .unwrap();
        assert_eq!(tokens.scope(&with("Bearer 0123456789abcdef")), Some(Scope::Read));
        assert_eq!(tokens.scope(&with("bearer fedcba9876543210")), Some(Scope::Learn));
        assert_eq!(tokens.scope(&with("Bearer aaaaaaaaaaaaaaaaaaaa")), Some(Scope::Admin));
        // me:fedcba9876543210
        assert_eq!(tokens.scope(&with("Basic bWU6ZmVkY2JhOTg3NjU0MzIxMA==")), Some(Scope::Learn));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Basic ====",
            "Basic bWU",
            "x y",
        ] {
            assert_eq!(tokens.scope(&with(wrong)), None, "{wrong}");
        }
        // One that repeats a token is another.
        assert_eq!(tokens.scope(&with("Bearer 0123456789abcdef0123456789abcdef")), None);
        assert_eq!(tokens.scope(&HeaderMap::new()), None);
        assert_eq!(Tokens::default().scope(&HeaderMap::new()), Some(Scope::Admin));
        assert_eq!(format!("{tokens:?}"), "Tokens(3)");
    }

    #[test]
    fn what_is_no_list_of_tokens_is_named() {
        assert_eq!("learn short".parse::<Tokens>().err(), Some(TokenError::Token { line: 1 }));
        assert_eq!("\nlearn".parse::<Tokens>().err(), Some(TokenError::Line { line: 2 }));
        assert_eq!("all 0123456789abcdef".parse::<Tokens>().err(), Some(TokenError::Scope("all".into())));
    }
}
