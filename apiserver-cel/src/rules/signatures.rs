//! The functions that expressions may call: those of Kubernetes 1.36, with the types they take and return.
//!
//! A function that is not here is refused when a definition or a policy is admitted, so that no rule is accepted that
//! cannot be evaluated. `A` and `B` stand for any type, the same wherever they are in one line.

use super::types::Type;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TABLE: &str = "
size(string): int; size(bytes): int; size(list(A)): int; size(map(A, B)): int
string.size(): int; bytes.size(): int; list(A).size(): int; map(A, B).size(): int
type(A): type(A); dyn(A): dyn
int(int): int; int(uint): int; int(double): int; int(string): int; int(timestamp): int; int(duration): int
uint(uint): uint; uint(int): uint; uint(double): uint; uint(string): uint
double(double): double; double(int): double; double(uint): double; double(string): double
string(string): string; string(bool): string; string(int): string; string(uint): string; string(double): string
string(bytes): string; string(duration): string; string(timestamp): string; string(IP): string; string(CIDR): string
bytes(bytes): bytes; bytes(string): bytes; bool(bool): bool; bool(string): bool
duration(duration): duration; duration(int): duration; duration(string): duration
timestamp(timestamp): timestamp; timestamp(int): timestamp; timestamp(string): timestamp
timestamp.getFullYear(): int; timestamp.getFullYear(string): int; timestamp.getMonth(): int
timestamp.getMonth(string): int; timestamp.getDate(): int; timestamp.getDate(string): int
timestamp.getDayOfMonth(): int; timestamp.getDayOfMonth(string): int; timestamp.getDayOfWeek(): int
timestamp.getDayOfWeek(string): int; timestamp.getDayOfYear(): int; timestamp.getDayOfYear(string): int
timestamp.getHours(): int; timestamp.getHours(string): int; timestamp.getMinutes(): int
timestamp.getMinutes(string): int; timestamp.getSeconds(): int; timestamp.getSeconds(string): int
timestamp.getMilliseconds(): int; timestamp.getMilliseconds(string): int
duration.getHours(): int; duration.getMinutes(): int; duration.getSeconds(): int; duration.getMilliseconds(): int
matches(string, string): bool; string.matches(string): bool
string.contains(string): bool; string.startsWith(string): bool; string.endsWith(string): bool
string.charAt(int): string; string.indexOf(string): int; string.indexOf(string, int): int
string.lastIndexOf(string): int; string.lastIndexOf(string, int): int
string.lowerAscii(): string; string.upperAscii(): string; string.trim(): string
string.replace(string, string): string; string.replace(string, string, int): string
string.split(string): list(string); string.split(string, int): list(string)
string.substring(int): string; string.substring(int, int): string; string.format(list(dyn)): string
list(string).join(): string; list(string).join(string): string; strings.quote(string): string
string.find(string): string; string.findAll(string): list(string); string.findAll(string, int): list(string)
list(int).isSorted(): bool; list(uint).isSorted(): bool; list(double).isSorted(): bool; list(bool).isSorted(): bool
list(duration).isSorted(): bool; list(timestamp).isSorted(): bool; list(string).isSorted(): bool
list(bytes).isSorted(): bool
list(int).sum(): int; list(uint).sum(): uint; list(double).sum(): double; list(duration).sum(): duration
list(int).min(): int; list(uint).min(): uint; list(double).min(): double; list(bool).min(): bool
list(duration).min(): duration; list(timestamp).min(): timestamp; list(string).min(): string; list(bytes).min(): bytes
list(int).max(): int; list(uint).max(): uint; list(double).max(): double; list(bool).max(): bool
list(duration).max(): duration; list(timestamp).max(): timestamp; list(string).max(): string; list(bytes).max(): bytes
list(A).indexOf(A): int; list(A).lastIndexOf(A): int
list(A).slice(int, int): list(A); list(list(A)).flatten(): list(A); list(dyn).flatten(int): list(dyn)
list(int).sort(): list(int); list(uint).sort(): list(uint); list(double).sort(): list(double)
list(bool).sort(): list(bool); list(duration).sort(): list(duration); list(timestamp).sort(): list(timestamp)
list(string).sort(): list(string); list(bytes).sort(): list(bytes)
list(A).@sortByAssociatedKeys(list(int)): list(A); list(A).@sortByAssociatedKeys(list(uint)): list(A)
list(A).@sortByAssociatedKeys(list(double)): list(A); list(A).@sortByAssociatedKeys(list(bool)): list(A)
list(A).@sortByAssociatedKeys(list(duration)): list(A); list(A).@sortByAssociatedKeys(list(timestamp)): list(A)
list(A).@sortByAssociatedKeys(list(string)): list(A); list(A).@sortByAssociatedKeys(list(bytes)): list(A)
list(A).distinct(): list(A); list(A).reverse(): list(A); list(A).first(): optional(A); list(A).last(): optional(A)
lists.range(int): list(int)
url(string): URL; isURL(string): bool; URL.getScheme(): string; URL.getHost(): string; URL.getHostname(): string
URL.getPort(): string; URL.getEscapedPath(): string; URL.getQuery(): map(string, list(string))
quantity(string): Quantity; isQuantity(string): bool; Quantity.isInteger(): bool; Quantity.asInteger(): int
Quantity.asApproximateFloat(): double; Quantity.add(Quantity): Quantity; Quantity.add(int): Quantity
Quantity.sub(Quantity): Quantity; Quantity.sub(int): Quantity; sign(Quantity): int
Quantity.isLessThan(Quantity): bool; Quantity.isGreaterThan(Quantity): bool; Quantity.compareTo(Quantity): int
ip(string): IP; isIP(string): bool; ip.isCanonical(string): bool; IP.family(): int; IP.isUnspecified(): bool
IP.isLoopback(): bool; IP.isLinkLocalMulticast(): bool; IP.isLinkLocalUnicast(): bool; IP.isGlobalUnicast(): bool
cidr(string): CIDR; isCIDR(string): bool; CIDR.containsIP(string): bool; CIDR.containsIP(IP): bool
CIDR.containsCIDR(string): bool; CIDR.containsCIDR(CIDR): bool; CIDR.ip(): IP; CIDR.masked(): CIDR
CIDR.prefixLength(): int
semver(string): Semver; semver(string, bool): Semver; isSemver(string): bool; isSemver(string, bool): bool
Semver.major(): int; Semver.minor(): int; Semver.patch(): int; Semver.isLessThan(Semver): bool
Semver.isGreaterThan(Semver): bool; Semver.compareTo(Semver): int
format.named(string): optional(NamedFormat); format.dns1123Label(): NamedFormat; format.dns1035Label(): NamedFormat
format.dns1123Subdomain(): NamedFormat; format.qualifiedName(): NamedFormat; format.dns1123LabelPrefix(): NamedFormat
format.dns1123SubdomainPrefix(): NamedFormat; format.dns1035LabelPrefix(): NamedFormat
format.labelValue(): NamedFormat; format.uri(): NamedFormat; format.uuid(): NamedFormat; format.byte(): NamedFormat
format.date(): NamedFormat; format.datetime(): NamedFormat; NamedFormat.validate(string): optional(list(string))
sets.contains(list(A), list(A)): bool; sets.equivalent(list(A), list(A)): bool; sets.intersects(list(A), list(A)): bool
optional.of(A): optional(A); optional.none(): optional(A); optional.ofNonZeroValue(A): optional(A)
optional(A).hasValue(): bool; optional(A).value(): A; optional(A).or(optional(A)): optional(A)
optional(A).orValue(A): A; optional.unwrap(list(optional(A))): list(A); list(optional(A)).unwrapOpt(): list(A)
Authorizer.path(string): PathCheck; Authorizer.group(string): GroupCheck
Authorizer.serviceAccount(string, string): Authorizer; PathCheck.check(string): Decision
GroupCheck.resource(string): ResourceCheck; ResourceCheck.subresource(string): ResourceCheck
ResourceCheck.namespace(string): ResourceCheck; ResourceCheck.name(string): ResourceCheck
ResourceCheck.fieldSelector(string): ResourceCheck; ResourceCheck.labelSelector(string): ResourceCheck
ResourceCheck.check(string): Decision; Decision.allowed(): bool; Decision.errored(): bool; Decision.reason(): string
Decision.error(): string
";

/// One way to call a function.
pub struct Signature {
    /// As it stands in the table.
    pub text: &'static str,
    /// With the prefix of its library.
    pub name: &'static str,
    method: bool,
    /// The target first, if there is one.
    takes: Vec<Shape>,
    gives: Shape,
}

/// A type with parameters.
enum Shape {
    Any(char),
    Plain(Type),
    Of(&'static str, Vec<Shape>),
}

/// Every signature.
pub static SIGNATURES: LazyLock<Vec<Signature>> = LazyLock::new(|| {
    TABLE.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty()).map(read).collect()
});

/// Signatures by name.
static BY_NAME: LazyLock<BTreeMap<&'static str, Vec<&'static Signature>>> = LazyLock::new(|| {
    let mut known: BTreeMap<&str, Vec<&Signature>> = BTreeMap::new();
    for signature in SIGNATURES.iter() {
        known.entry(signature.name).or_default().push(signature);
    }
    known
});

fn read(text: &'static str) -> Signature {
    let (call, gives) = text.rsplit_once("): ").unwrap_or((text, "dyn"));
    // The arguments start at the bracket that is open at the end.
    let mut depth = 1;
    let open = call.char_indices().rev().find(|(_, c)| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    });
    let open = open.map_or(call.len(), |(at, _)| at);
    let (head, args) = (&call[..open], call.get(open + 1..).unwrap_or_default());
    let mut takes = Vec::new();
    let target = head.rsplit_once('.').filter(|(target, _)| !crate::eval::NAMESPACES.contains(target));
    let name = target.map_or(head, |(_, name)| name);
    takes.extend(target.map(|(target, _)| shape(target)));
    takes.extend(split(args).into_iter().map(shape));
    Signature { text, name, method: target.is_some(), takes, gives: shape(gives) }
}

/// What stands between commas, but not in brackets.
fn split(args: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in args.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(args[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    if !args.is_empty() {
        parts.push(args[start..].trim());
    }
    parts
}

fn shape(text: &'static str) -> Shape {
    if let Some((of, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        return Shape::Of(of, split(inner).into_iter().map(shape).collect());
    }
    match text {
        "A" | "B" => Shape::Any(if text == "A" { 'A' } else { 'B' }),
        text => Shape::Plain(Type::named(text)),
    }
}

/// What a function returns for these types; the target is the first of a method's.
pub enum Resolved {
    Gives(Type),
    /// It takes others.
    NoOverload,
    /// There is no such function.
    Unknown,
}

/// Whether there is such a function.
pub fn known(name: &str) -> bool {
    BY_NAME.contains_key(name)
}

/// Looks a function up.
pub fn resolve(name: &str, method: bool, given: &[Type]) -> Resolved {
    let Some(known) = BY_NAME.get(name) else { return Resolved::Unknown };
    let mut found: Option<Type> = None;
    for signature in known.iter().filter(|s| s.method == method) {
        let Some(gives) = signature.accepts(given) else { continue };
        found = match found {
            None => Some(gives),
            Some(before) if before.same(&gives) => Some(before),
            Some(_) => Some(Type::Dyn),
        };
    }
    found.map_or(Resolved::NoOverload, Resolved::Gives)
}

impl Signature {
    fn accepts(&self, given: &[Type]) -> Option<Type> {
        if self.takes.len() != given.len() {
            return None;
        }
        let mut bound = BTreeMap::new();
        let fits = self.takes.iter().zip(given).all(|(shape, given)| shape.unify(given, &mut bound));
        fits.then(|| self.gives.made(&bound))
    }
}

impl Shape {
    fn unify(&self, given: &Type, bound: &mut BTreeMap<char, Type>) -> bool {
        match (self, given) {
            (Shape::Any(name), given) => {
                let joined = match bound.get(name) {
                    Some(known) => known.join(given),
                    None => Some(given.clone()),
                };
                let fits = joined.is_some();
                bound.extend(joined.map(|joined| (*name, joined)));
                fits
            }
            (Shape::Plain(wanted), given) => wanted.join(given).is_some(),
            (Shape::Of(..), Type::Dyn | Type::Free) => true,
            (Shape::Of("list", inner), Type::List(given))
            | (Shape::Of("optional", inner), Type::Optional(given))
            | (Shape::Of("type", inner), Type::Meta(given)) => inner[0].unify(given, bound),
            (Shape::Of("map", inner), Type::Map(key, value)) => {
                inner[0].unify(key, bound) && inner[1].unify(value, bound)
            }
            _ => false,
        }
    }

    fn made(&self, bound: &BTreeMap<char, Type>) -> Type {
        match self {
            Shape::Any(name) => bound.get(name).cloned().unwrap_or(Type::Free),
            Shape::Plain(plain) => plain.clone(),
            Shape::Of(of, inner) => {
                let mut inner = inner.iter().map(|shape| Box::new(shape.made(bound)));
                let mut next = || inner.next().unwrap_or_else(|| Box::new(Type::Free));
                match *of {
                    "list" => Type::List(next()),
                    "optional" => Type::Optional(next()),
                    "type" => Type::Meta(next()),
                    _ => Type::Map(next(), next()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let named = |text: &str| SIGNATURES.iter().find(|s| s.text == text).unwrap();
        let index = named("list(A).indexOf(A): int");
        assert_eq!((index.name, index.method, index.takes.len()), ("indexOf", true, 2));
        let sets = named("sets.contains(list(A), list(A)): bool");
        assert_eq!((sets.name, sets.method, sets.takes.len()), ("sets.contains", false, 2));
        let canonical = named("ip.isCanonical(string): bool");
        assert_eq!((canonical.name, canonical.method), ("ip.isCanonical", false));
        let or = named("optional(A).or(optional(A)): optional(A)");
        assert_eq!((or.name, or.method, or.takes.len()), ("or", true, 2));
        assert!(SIGNATURES.len() > 200);
    }
}
