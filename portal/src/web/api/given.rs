//! Parameters of a query: what a route takes, for its document, and what was given, checked against that.

use http::Uri;
use serde_json::{Value, json};

use super::error::ApiError;
use fleet_pages::pairs::Pairs;

/// A parameter of a query. All may be left out.
#[derive(Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub takes: Takes,
}

#[derive(Clone, Copy)]
pub enum Takes {
    Text,
    OneOf(fn() -> Vec<&'static str>),
    /// From, to, and the value of one that is left out, where there is one.
    Integer(i64, i64, Option<i64>),
    Flag,
}

impl Takes {
    pub fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::OneOf(all) => json!({"type": "string", "enum": all()}),
            Self::Integer(from, to, None) => json!({"type": "integer", "minimum": from, "maximum": to}),
            Self::Integer(from, to, Some(absent)) => {
                json!({"type": "integer", "minimum": from, "maximum": to, "default": absent})
            }
            Self::Flag => json!({"type": "boolean", "default": false}),
        }
    }

    fn check(self, name: &str, found: &str) -> Result<(), ApiError> {
        match self {
            Self::Text => Ok(()),
            Self::OneOf(all) if all().contains(&found) => Ok(()),
            Self::OneOf(all) => Err(ApiError::parameter(name, found, &all().join(", "))),
            Self::Integer(from, to, _) => match found.parse::<i64>() {
                Ok(number) if (from..=to).contains(&number) => Ok(()),
                _ => Err(ApiError::parameter(name, found, &format!("a whole number from {from} to {to}"))),
            },
            Self::Flag if matches!(found, "true" | "false") => Ok(()),
            Self::Flag => Err(ApiError::parameter(name, found, "true, false")),
        }
    }
}

/// What was given of the parameters that a route takes.
pub struct Given(Pairs);

impl Given {
    /// # Errors
    /// A parameter that the route does not take, one that is given twice, or a value that it does not take.
    pub fn read(uri: &Uri, takes: &[Parameter]) -> Result<Self, ApiError> {
        let pairs = Pairs::read(uri.query().unwrap_or(""));
        for (index, (name, value)) in pairs.0.iter().enumerate() {
            let Some(parameter) = takes.iter().find(|parameter| parameter.name == name) else {
                let names: Vec<&str> = takes.iter().map(|parameter| parameter.name).collect();
                let allowed = if names.is_empty() { "no parameters".to_owned() } else { names.join(", ") };
                return Err(ApiError::parameter("parameter", name, &allowed));
            };
            if pairs.0[..index].iter().any(|(other, _)| other == name) {
                return Err(ApiError::parameter(name, value, "one value"));
            }
            parameter.takes.check(name, value)?;
        }
        Ok(Self(pairs))
    }

    /// Empty where it is left out.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name)
    }

    pub fn owned(&self, name: &str) -> String {
        self.0.get(name).to_owned()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name).parse().ok()
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.0.get(name) == "true"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        const TAKES: [Parameter; 4] = [
            Parameter { name: "text", about: "", takes: Takes::Text },
            Parameter { name: "sort", about: "", takes: Takes::OneOf(|| vec!["a", "b"]) },
            Parameter { name: "limit", about: "", takes: Takes::Integer(1, 9, Some(5)) },
            Parameter { name: "dryRun", about: "", takes: Takes::Flag },
        ];
        let check = |query: &str, expected: &str| {
            let uri: Uri = format!("/x?{query}").parse().expect("an address");
            let said = Given::read(&uri, &TAKES).map_or_else(|error| error.message, |_| String::new());
            assert_eq!(said, expected, "{query}");
        };
        check("text=a+b&sort=b&limit=9&dryRun=true", "");
        check("odd=1", "parameter: found \"odd\"; allowed: text, sort, limit, dryRun");
        check("sort=c", "sort: found \"c\"; allowed: a, b");
        check("limit=0", "limit: found \"0\"; allowed: a whole number from 1 to 9");
        check("limit=x", "limit: found \"x\"; allowed: a whole number from 1 to 9");
        check("dryRun=1", "dryRun: found \"1\"; allowed: true, false");
        check("text=a&text=b", "text: found \"b\"; allowed: one value");
    }
}
