//! The page before all others.

use maud::{Markup, html};

use super::frame::{Frame, frame};

/// `back`: where to go then.
pub fn sign_in(form_key: &str, back: &str, trouble: Option<&str>) -> Markup {
    let main = html! {
        div.narrow {
            h1 { "Sign in" }
            @if let Some(trouble) = trouble { p.error #trouble role="alert" { (trouble) } }
            form method="post" action="/sign-in" {
                input type="hidden" name="form_key" value=(form_key);
                input type="hidden" name="back" value=(back);
                // Keepers of passwords ask for a name beside it.
                input.hidden type="text" name="username" value="token" autocomplete="username" tabindex="-1" aria-hidden="true";
                label for="token" { "A token of the hub" }
                input #token type="password" name="token" required autofocus autocomplete="current-password"
                    aria-describedby="token-help" aria-invalid=[trouble.map(|_| "true")];
                p.help #token-help {
                    "The token of your user or service account. Beside " code { "fleet up" } " it is what "
                    code { "fleet portal token" } " prints. The portal shows and does what the hub lets you, and keeps the token in memory only."
                }
                button.primary { "Sign in" }
            }
        }
    };
    frame(&Frame { title: "Sign in", path: "/sign-in", visitor: None, is_live: false }, main)
}
