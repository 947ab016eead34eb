//! Where a value stands, written as a JSON pointer only when somebody is told.

/// One step of a path.
#[derive(Clone, Copy)]
pub(super) enum Step<'v> {
    Field(&'v str),
    Item(usize),
}

#[derive(Default)]
pub(super) struct Path<'v>(Vec<Step<'v>>);

impl<'v> Path<'v> {
    pub fn push(&mut self, step: Step<'v>) {
        self.0.push(step);
    }

    pub fn pop(&mut self) {
        self.0.pop();
    }

    pub fn pointer(&self) -> String {
        let mut out = String::new();
        for step in &self.0 {
            out.push('/');
            match step {
                Step::Field(name) => out.push_str(&name.replace('~', "~0").replace('/', "~1")),
                Step::Item(at) => out.push_str(&at.to_string()),
            }
        }
        out
    }
}
