//! Macros: calls that bind names of their own become comprehensions.
//!
//! Source: the language definition, and the extension "two-variable comprehensions".

use super::{Mistake, Parser, Read};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators as op,
};

/// What a comprehension gathers.
const GATHERED: &str = "@result";
/// Adds an entry to a map; an entry that is there already is an error.
pub const MAP_INSERT: &str = "cel.@mapInsert";

/// The function that `sortBy` becomes: it has the keys beside the items.
pub const SORT_BY: &str = "@sortByAssociatedKeys";

/// What a macro is about.
struct Over {
    at: usize,
    range: IdedExpr,
    names: Vec<String>,
}

impl Parser {
    /// A call without a target.
    pub(super) fn global(&mut self, at: usize, name: String, mut args: Vec<IdedExpr>) -> Read {
        if name != op::HAS || args.len() != 1 {
            return Ok(self.make(at, Expr::Call(CallExpr { func_name: name, target: None, args })));
        }
        let tested = args.swap_remove(0);
        let id = usize::try_from(tested.id).unwrap_or_default();
        match tested.expr {
            Expr::Select(select) => Ok(self.make(at, Expr::Select(SelectExpr { test: true, ..select }))),
            _ => {
                let at = self.places.get(id).copied().unwrap_or(at);
                Err(Mistake { at, why: "invalid argument to has() macro".into() })
            }
        }
    }

    /// A call of a target.
    pub(super) fn receiver(
        &mut self,
        at: usize,
        target: IdedExpr,
        name: String,
        mut args: Vec<IdedExpr>,
    ) -> Read {
        let names = match (name.as_str(), args.len()) {
            ("all" | "exists" | "exists_one" | "filter" | "optMap" | "optFlatMap" | "sortBy", 2)
            | ("map", 2 | 3) => 1,
            ("all" | "exists" | "exists_one" | "existsOne", 3) => 2,
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => 2,
            _ => {
                let target = Some(Box::new(target));
                return Ok(self.make(at, Expr::Call(CallExpr { func_name: name, target, args })));
            }
        };
        let mut bound = Vec::new();
        for variable in args.drain(..names) {
            bound.push(self.variable(variable)?);
        }
        if let [first, second] = bound.as_slice()
            && first == second
        {
            return Err(Mistake { at, why: format!("duplicate variable name: {first}") });
        }
        let last = args.pop().unwrap_or_default();
        if name == "sortBy" {
            return Ok(self.sort_by(at, target, bound, last));
        }
        if name.starts_with("opt") {
            return Ok(self.optional(at, target, bound.swap_remove(0), name == "optMap", last));
        }
        let over = Over { at, range: target, names: bound };
        Ok(match name.as_str() {
            "all" => self.all(over, last),
            "exists" => self.exists(over, last),
            "exists_one" | "existsOne" => self.exists_one(over, last),
            "filter" => {
                let item = self.make(at, Expr::Ident(over.names[0].clone()));
                self.gather_list(over, Some(last), item)
            }
            "map" | "transformList" => self.gather_list(over, args.pop(), last),
            _ => self.gather_map(over, args.pop(), last, name == "transformMap"),
        })
    }

    fn variable(&mut self, e: IdedExpr) -> Read<String> {
        let at = usize::try_from(e.id).ok().and_then(|id| self.places.get(id)).copied().unwrap_or_default();
        match e.expr {
            Expr::Ident(name) => Ok(name),
            _ => Err(Mistake { at, why: "argument is not an identifier".into() }),
        }
    }

    fn gathered(&mut self, at: usize) -> IdedExpr {
        self.make(at, Expr::Ident(GATHERED.into()))
    }

    fn truth(&mut self, at: usize, truth: bool) -> IdedExpr {
        self.make(at, Expr::Literal(LiteralValue::Boolean(truth.into())))
    }

    fn int(&mut self, at: usize, n: i64) -> IdedExpr {
        self.make(at, Expr::Literal(LiteralValue::Int(n.into())))
    }

    fn comprehension(
        &mut self,
        over: Over,
        accu_init: IdedExpr,
        [loop_cond, loop_step, result]: [IdedExpr; 3],
    ) -> IdedExpr {
        let Over { at, range: iter_range, names } = over;
        let mut names = names.into_iter();
        let (iter_var, iter_var2) = (names.next().unwrap_or_default(), names.next());
        let accu_var = GATHERED.to_string();
        let made = ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2,
            accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        };
        self.make(at, Expr::Comprehension(Box::new(made)))
    }

    fn all(&mut self, over: Over, test: IdedExpr) -> IdedExpr {
        let at = over.at;
        let init = self.truth(at, true);
        let so_far = self.gathered(at);
        let going = self.call(at, op::NOT_STRICTLY_FALSE, vec![so_far]);
        let so_far = self.gathered(at);
        let step = self.call(at, op::LOGICAL_AND, vec![so_far, test]);
        let result = self.gathered(at);
        self.comprehension(over, init, [going, step, result])
    }

    fn exists(&mut self, over: Over, test: IdedExpr) -> IdedExpr {
        let at = over.at;
        let init = self.truth(at, false);
        let so_far = self.gathered(at);
        let not_yet = self.call(at, op::LOGICAL_NOT, vec![so_far]);
        let going = self.call(at, op::NOT_STRICTLY_FALSE, vec![not_yet]);
        let so_far = self.gathered(at);
        let step = self.call(at, op::LOGICAL_OR, vec![so_far, test]);
        let result = self.gathered(at);
        self.comprehension(over, init, [going, step, result])
    }

    fn exists_one(&mut self, over: Over, test: IdedExpr) -> IdedExpr {
        let at = over.at;
        let init = self.int(at, 0);
        let going = self.truth(at, true);
        let (so_far, one) = (self.gathered(at), self.int(at, 1));
        let more = self.call(at, op::ADD, vec![so_far, one]);
        let so_far = self.gathered(at);
        let step = self.call(at, op::CONDITIONAL, vec![test, more, so_far]);
        let (found, one) = (self.gathered(at), self.int(at, 1));
        let result = self.call(at, op::EQUALS, vec![found, one]);
        self.comprehension(over, init, [going, step, result])
    }

    /// A step only where the filter holds.
    fn filtered(&mut self, at: usize, filter: Option<IdedExpr>, step: IdedExpr) -> IdedExpr {
        let Some(filter) = filter else { return step };
        let so_far = self.gathered(at);
        self.call(at, op::CONDITIONAL, vec![filter, step, so_far])
    }

    fn gather_list(&mut self, over: Over, filter: Option<IdedExpr>, item: IdedExpr) -> IdedExpr {
        let at = over.at;
        let init = self.make(at, Expr::List(ListExpr::new(Vec::new())));
        let going = self.truth(at, true);
        let so_far = self.gathered(at);
        let item = self.make(at, Expr::List(ListExpr::new(vec![item])));
        let step = self.call(at, op::ADD, vec![so_far, item]);
        let step = self.filtered(at, filter, step);
        let result = self.gathered(at);
        self.comprehension(over, init, [going, step, result])
    }

    /// `keyed`: the value is put under the first name; else it is a map of entries to put.
    fn gather_map(&mut self, over: Over, filter: Option<IdedExpr>, value: IdedExpr, keyed: bool) -> IdedExpr {
        let at = over.at;
        let init = self.make(at, Expr::Map(MapExpr { entries: Vec::new() }));
        let going = self.truth(at, true);
        let mut args = vec![self.gathered(at)];
        if keyed {
            args.push(self.make(at, Expr::Ident(over.names[0].clone())));
        }
        args.push(value);
        let step = self.call(at, MAP_INSERT, args);
        let step = self.filtered(at, filter, step);
        let result = self.gathered(at);
        self.comprehension(over, init, [going, step, result])
    }

    /// A name for a value within an expression.
    fn bind(&mut self, at: usize, accu_var: String, accu_init: IdedExpr, result: IdedExpr) -> IdedExpr {
        let iter_range = self.make(at, Expr::List(ListExpr::new(Vec::new())));
        let loop_cond = self.truth(at, false);
        let loop_step = self.make(at, Expr::Ident(accu_var.clone()));
        let iter_var = "#unused".to_string();
        let made = ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2: None,
            accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        };
        self.make(at, Expr::Comprehension(Box::new(made)))
    }

    /// The list, sorted by the key of each item.
    fn sort_by(&mut self, at: usize, target: IdedExpr, names: Vec<String>, key: IdedExpr) -> IdedExpr {
        let input = "@__sortBy_input__";
        let range = self.make(at, Expr::Ident(input.into()));
        let keys = self.gather_list(Over { at, range, names }, None, key);
        let sorted = Some(Box::new(self.make(at, Expr::Ident(input.into()))));
        let call = CallExpr { func_name: SORT_BY.into(), target: sorted, args: vec![keys] };
        let result = self.make(at, Expr::Call(call));
        self.bind(at, input.into(), target, result)
    }

    /// `target.hasValue() ? optional.of(result with the name bound) : optional.none()`; without `wrap` the result
    /// is an optional itself.
    fn optional(
        &mut self,
        at: usize,
        target: IdedExpr,
        name: String,
        wrap: bool,
        result: IdedExpr,
    ) -> IdedExpr {
        let method = |name: &str, target: &IdedExpr| {
            let target = Some(Box::new(target.clone()));
            Expr::Call(CallExpr { func_name: name.into(), target, args: Vec::new() })
        };
        let (has, value) = (method("hasValue", &target), method("value", &target));
        let (has, value) = (self.make(at, has), self.make(at, value));
        let bound = self.bind(at, name, value, result);
        let yes = if wrap { self.library(at, "of", vec![bound]) } else { bound };
        let no = self.library(at, "none", Vec::new());
        self.call(at, op::CONDITIONAL, vec![has, yes, no])
    }

    fn library(&mut self, at: usize, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        let target = Some(Box::new(self.make(at, Expr::Ident("optional".into()))));
        self.make(at, Expr::Call(CallExpr { func_name: name.into(), target, args }))
    }
}
