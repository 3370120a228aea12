//! Kernel expressions as text: `rbf`, `rbf + periodic`, `matern32*(rq + cosine@0)`, `sm:4`.
//!
//! ```text
//! sum     = product { "+" product }
//! product = factor { "*" factor }
//! factor  = "(" sum ")" | family [ "@" axis { "," axis } ]
//! family  = rbf | matern12 | matern32 | matern52 | rq | periodic | cosine | sm:Q
//! ```
//!
//! On no axes, for a block of inducing points, the only factor is `scale`.

use super::{Family, Kernel};
use crate::error::{Error, Result};

impl Kernel {
    /// The kernel that an expression describes, on `dim` axes, with default parameters. `@` limits a part to
    /// the axes named after it.
    ///
    /// ```
    /// use wiski::Kernel;
    ///
    /// let kernel = Kernel::parse("rbf + periodic@1", 2)?;
    /// assert_eq!(kernel.parameter_names()[3..], ["1.outputscale", "1.lengthscale[1]", "1.period[1]"]);
    /// assert!(Kernel::parse("rfb", 2).unwrap_err().to_string().contains("'rfb'"));
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn parse(expression: &str, dim: usize) -> Result<Self> {
        let mut parser = Parser { rest: expression, expression, dim, depth: 0 };
        let kernel = parser.sum()?;
        if parser.rest.trim_start().is_empty() { Ok(kernel) } else { Err(parser.unexpected()) }
    }
}

struct Parser<'a> {
    rest: &'a str,
    expression: &'a str,
    dim: usize,
    /// Brackets that are open.
    depth: usize,
}

/// Brackets may be nested so deep: each takes its part of the stack.
const DEEPEST: usize = 64;

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<Kernel> {
        let mut sum = self.product()?;
        while self.accept('+') {
            sum = sum + self.product()?;
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<Kernel> {
        let mut product = self.factor()?;
        while self.accept('*') {
            product = product * self.factor()?;
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<Kernel> {
        if self.accept('(') {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.reject(&format!("brackets are nested more than {DEEPEST} deep")));
            }
            let inner = self.sum()?;
            self.depth -= 1;
            return if self.accept(')') {
                Ok(inner)
            } else {
                Err(self.reject("a closing bracket is missing"))
            };
        }
        if self.dim == 0 {
            return match self.take(|c| c.is_ascii_alphanumeric()) {
                "scale" => Kernel::output_scale(std::f64::consts::LN_2),
                "" => Err(self.unexpected()),
                other => Err(self.reject(&format!("'{other}' is not scale, the only kernel on no axes"))),
            };
        }
        let family = self.family()?;
        if !self.accept('@') {
            return Kernel::new(family, self.dim);
        }
        let mut axes = vec![self.axis()?];
        while self.accept(',') {
            axes.push(self.axis()?);
        }
        axes.sort_unstable();
        axes.dedup();
        Kernel::on_axes(family, self.dim, &axes)
    }

    fn family(&mut self) -> Result<Family> {
        let word = self.take(|c| c.is_ascii_alphanumeric());
        match word {
            "sm" => {
                let components = if self.accept(':') { self.number()? } else { 4 };
                Ok(Family::SpectralMixture { components })
            }
            "" => Err(self.unexpected()),
            word => Family::NAMED.into_iter().find(|family| family.name() == word).ok_or_else(|| {
                let known = Family::NAMED.map(Family::name).join(", ");
                self.reject(&format!("'{word}' is not one of {known} and sm:Q"))
            }),
        }
    }

    fn axis(&mut self) -> Result<usize> {
        let axis = self.number()?;
        if axis < self.dim { Ok(axis) } else { Err(self.reject(&format!("there is no axis {axis}"))) }
    }

    fn number(&mut self) -> Result<usize> {
        let digits = self.take(|c| c.is_ascii_digit());
        digits.parse().ok().filter(|n| *n <= 64).ok_or_else(|| self.reject("a small number is missing"))
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn accept(&mut self, symbol: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn unexpected(&self) -> Error {
        match self.rest.trim_start() {
            "" => self.reject("a kernel is missing at the end"),
            rest => self.reject(&format!("'{rest}' was not expected")),
        }
    }

    fn reject(&self, reason: &str) -> Error {
        const SHOWN: usize = 80;
        let more = if self.expression.chars().count() > SHOWN { "…" } else { "" };
        let shown: String = self.expression.chars().take(SHOWN).collect();
        Error::Config { field: "kernel".into(), reason: format!("{shown}{more}: {reason}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_the_operators_build() {
        let new = |family| Kernel::new(family, 2).unwrap();
        let cases = [
            ("rbf", new(Family::Rbf)),
            (" matern12+rq ", new(Family::Matern12) + new(Family::RationalQuadratic)),
            (
                "rbf*cosine + sm:3",
                new(Family::Rbf) * new(Family::Cosine) + new(Family::SpectralMixture { components: 3 }),
            ),
            (
                "matern32*(matern52+periodic)",
                new(Family::Matern32) * (new(Family::Matern52) + new(Family::Periodic)),
            ),
            ("periodic@1", Kernel::on_axes(Family::Periodic, 2, &[1]).unwrap()),
        ];
        for (text, kernel) in cases {
            assert_eq!(Kernel::parse(text, 2).unwrap(), kernel, "{text}");
            // What is shown can be read again.
            assert_eq!(Kernel::parse(&kernel.to_string(), 2).unwrap(), kernel, "{kernel}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("", "a kernel is missing"),
            ("rbf +", "a kernel is missing"),
            ("rbf rbf", "'rbf' was not expected"),
            ("gauss", "'gauss' is not one of"),
            ("(rbf", "closing bracket"),
            ("rbf@2", "no axis 2"),
            ("sm:0", "at least one component"),
            ("sm:x", "small number"),
            ("scale", "'scale' is not one of"),
        ] {
            let error = Kernel::parse(text, 2).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        for (text, message) in [("rbf", "'rbf' is not scale"), ("", "a kernel is missing")] {
            let error = Kernel::parse(text, 0).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
