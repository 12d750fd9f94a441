"""Samplers in processes of their own, which see nothing but messages: `docs/any-language.md` shows them."""
